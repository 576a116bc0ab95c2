"""After the rollout: whether speculation still pays, why not, and what to do. Pure decisions over readings."""
