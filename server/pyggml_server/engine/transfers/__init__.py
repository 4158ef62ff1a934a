"""How one state leaves the device and comes back, and the host memory that it goes to."""
