"""Show the state of nodes, Services, routes and the cloud: in a terminal and as a page.

source    what the manager knows, and what the API server shows
summary   what to say about it                                    pure
text      as a table for a terminal                               pure
page      as HTML                                                 pure
command   `proreus status`
"""
