"""How nodes find one another: trackers asked and answered, and the host to announce."""
