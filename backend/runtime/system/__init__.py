"""What Linux tells of the machine and of processes in files, read here and nowhere else.

Only the connection broker of mpirun (:mod:`..faults.connection_broker`) reads its files itself, as
it loads no package.

The programs that boards get have this folder, too: Python 3.8 and its standard library suffice.
Functions take the root below which ``proc`` and ``sys`` lie, so that tests show other machines.
"""
