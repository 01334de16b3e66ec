"""Does the same training give the same bits: twice, stopped and resumed, with another number of threads?"""
