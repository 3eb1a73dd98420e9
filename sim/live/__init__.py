"""Real model servers for experiments on live models: their weights, and the processes that serve them."""
