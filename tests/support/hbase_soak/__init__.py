"""A soak over a real HBase: foreign writers, views of every kind, and faults drawn from one seed."""
