"""How the limiter behaves, slowly and obviously: the lifecycle, the whole-system model, the explorer, the monitor."""
