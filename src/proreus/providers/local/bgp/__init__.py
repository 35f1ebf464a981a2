"""BGP for the provider `local`: nodes announce the addresses of Services to routers.

The leader assigns addresses (`load_balancers`). On each node a speaker decides which of them that
node announces (`plan`), says so to an FRR beside it (`frr`, `changes`, `vty`, `engine`), and reads
back what became of it (`sessions`). See `docs/explanation/local-bgp.md`.
"""
