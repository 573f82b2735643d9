"""Train one model together on the computers you have, with no coordinator."""
