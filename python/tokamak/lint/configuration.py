def check(program, sites, reporter, length_lists, backend):
    pass
