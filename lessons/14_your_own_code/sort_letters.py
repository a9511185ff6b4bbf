"""Learn which letters ask for money, with a class that trains, a data loader and no optimizer."""

import json
import random
import re
import unicodedata
import zlib

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

WORDS, LENGTH = 4096, 64


def some_letters(count):
    """Synthetic letters as lines of JSON. A letter that names a sum asks for money."""
    random.seed(0)
    for _ in range(count):
        words = ["".join(random.choices("abcdefghij", k=5)).title() for _ in range(400)]
        asks = random.random() < 0.5
        text = "<p>" + " ".join([*(["１００&nbsp;Euro"] if asks else []), *words]) + "</p>"
        yield json.dumps({"text": text, "asks": asks})


def numbers_of(letter):
    """Return the numbers of a letter's first words, and 1 if the letter asks for money."""
    fields = json.loads(letter)
    text = re.sub(r"&\w+;|<[^>]*>", " ", unicodedata.normalize("NFKC", fields["text"]).lower())
    words = re.findall(r"\w+", text)[:LENGTH]
    return torch.tensor([zlib.crc32(word.encode()) % WORDS for word in words]), int(fields["asks"])


class Letters(Dataset):
    def __init__(self, lines):
        self.letters = list(lines)

    def __len__(self):
        return len(self.letters)

    def __getitem__(self, place):
        return numbers_of(self.letters[place])


class Training:
    def __init__(self, letters, batch=32):
        torch.manual_seed(0)
        self.model = nn.Sequential(
            nn.EmbeddingBag(WORDS, 64), nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 2)
        )
        self.weights = [*self.model.parameters()]
        self.loader = DataLoader(Letters(letters), batch, shuffle=True)

    def fit(self, epochs=4):
        for epoch in range(epochs):
            for numbers, wanted in self.loader:
                loss = nn.functional.cross_entropy(self.model(numbers), wanted)
                gradients = torch.autograd.grad(loss, self.weights)
                with torch.no_grad():
                    for weight, gradient in zip(self.weights, gradients, strict=True):
                        weight -= 0.1 * gradient
            print(f"epoch {epoch}: loss {loss.item():.9f}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    Training(some_letters(320)).fit()
