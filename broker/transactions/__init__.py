"""Transactional producers: ids, epochs, fencing, and the two-phase end of a transaction."""
