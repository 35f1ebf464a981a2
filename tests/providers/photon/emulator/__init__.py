"""A Photon Controller for tests, with Lightwave beside it.

Its documents, paths, pages, codes and statuses are those of Photon Controller's published API model
and of the types of its SDK for Go, which reads all of its answers (`../official`).
"""
