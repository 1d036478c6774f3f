"""The factor study: walk-forward forecasts of real months, and the gates of the nets that make them."""
