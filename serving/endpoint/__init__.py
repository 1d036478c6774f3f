"""An endpoint as a process: its options, its ports and its worker processes; needs no command line."""
