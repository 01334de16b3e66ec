"""The vocabulary of ListOps: 18 token ids, fixed here and the same for every source of the data.

====== ===========================  ==============================================
id     symbol                       purpose
====== ===========================  ==============================================
0      ``<pad>``                    right padding
1      ``<unk>``                    never occurs: an unknown symbol is an error
2      ``<eos>``                    ends every sequence
3-12   ``0`` .. ``9``
13-16  ``[MIN [MAX [MED [SM``       opens an operator
17     ``]``                        closes it
====== ===========================  ==============================================

The public PyTorch loaders of Long Range Arena number the symbols by their frequency in the training file;
ours have a fixed order, so that the ids never depend on the data. As in those loaders, round brackets are
no tokens and ``<eos>`` is appended; it is not counted where lengths are compared with bounds.
"""

SYMBOLS = ("<pad>", "<unk>", "<eos>", *"0123456789", "[MIN", "[MAX", "[MED", "[SM", "]")
IDS = {symbol: number for number, symbol in enumerate(SYMBOLS)}

EOS = IDS["<eos>"]
ZERO = IDS["0"]
MIN, MAX, MED, SM = (IDS[symbol] for symbol in ("[MIN", "[MAX", "[MED", "[SM"))
OPERATORS = (MIN, MAX, MED, SM)
CLOSE = IDS["]"]
CLASSES = 10
