"""`highway reproduce`: a study's runs, by processes that may be killed at any moment, and the page made of them."""
