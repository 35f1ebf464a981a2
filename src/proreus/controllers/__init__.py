"""The controllers: one folder each, `plan.py` decides and `controller.py` does.

`proreus.controllers.table` lists them.
"""
