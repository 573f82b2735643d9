"""A swarm of real processes on one machine: started, watched, disturbed, measured, shown."""
