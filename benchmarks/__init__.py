"""
What aiodocadma costs, beside its peers, goal by goal: ``python -m benchmarks``.

``_goals`` names what is measured and how good it must be; ``_counts`` counts instructions and system calls of the
bodies in ``_bodies``, in processes of their own; ``_times`` takes times, always as ratios of neighbours in one process;
``_curves`` feeds the plots; ``_peers`` has the C programs and the naive binding to compare with; ``_record`` is the
table and the JSON. Counts are gates, for they repeat; times are not, but on a quiet machine.
"""
