"""`proreus doctor`: says why nodes stay tainted and Services stay pending. It only reads.

`reading` looks, `nodes`, `services`, `manager` and `cloud` judge (pure), `report` prints.
"""
