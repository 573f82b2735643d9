"""The outer optimiser: rules, outer states, and the one function that advances them."""
