"""How an outer state gets from its holders to a peer that lacks it: pieces, donors, downloads."""
