"""The factor model, walked forward through real months."""
