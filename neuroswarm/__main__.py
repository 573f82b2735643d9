"""`python -m neuroswarm` is the `neuroswarm` command."""

from neuroswarm.cli.main import main

if __name__ == "__main__":
    main()
