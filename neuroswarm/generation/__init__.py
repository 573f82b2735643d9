"""Text from trained states and exported models."""
