"""`python -m neuroswarm` is the `neuroswarm` command."""

import sys


def main() -> None:
    """Entry point of the `neuroswarm` script: ready for signals before anything is imported."""
    from neuroswarm.cli.early_signals import leave_until_started

    leave_until_started(sys.argv[1:])

    if sys.argv[1:2] == ["health"]:
        from neuroswarm.cli.health_check import answer_early

        answer_early(sys.argv[1:])

    from neuroswarm.cli.main import main as run

    run()


if __name__ == "__main__":
    main()
