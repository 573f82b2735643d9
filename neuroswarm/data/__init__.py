"""Which tokens a node sees at which step; what is held out from training."""
