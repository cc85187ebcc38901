"""The write-ahead log (WAL) of HBase, read from the files of its region servers."""
