"""An LSTM on characters in PyTorch, the network of nn_model_text "lstm-char"."""

from torch import nn

WIDTH, UNITS, WORDS = 64, 256, 256


class LstmChar(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.lstm = nn.Embedding(WORDS, WIDTH), nn.LSTM(WIDTH, UNITS, batch_first=True)
        self.head = nn.Linear(UNITS, WORDS)

    def forward(self, x):
        return self.head(self.lstm(self.words(x))[0])
