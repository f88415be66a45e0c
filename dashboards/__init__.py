"""What people look at. Reads `marts.*` of the published file and nothing else."""
