"""Engine of `highway analyze`: measures a trained net and writes a page with tables and figures."""
