"""Run the controllers: in each folder `plan.py` decides and `controller.py` acts.

`proreus.controllers.table` lists them.
"""
