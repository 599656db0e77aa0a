"""What an operator sees and needs: metrics, logs, capacity, loading."""
