"""Generated from protos/neuroswarm/v1 by `make protos`; never edited by hand."""
