"""Speech hobbyist: log-spectrogram features, convolutions and CTC on synthetic tones, with the
character error rate.

One tone per letter; utterances are made on the fly.
"""

import math

import torch
from instrument_me import Watch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(21)

LETTERS = "abcdefghijklmnopqrstuvwxyz "
RATE, BATCH, CHARS = 8000, 16, 48
PER_CHAR = 480


def utterances():
    text = torch.randint(1, len(LETTERS) + 1, (BATCH, CHARS))
    freq = 200.0 + 120.0 * text.repeat_interleave(PER_CHAR, dim=1)
    t = torch.arange(freq.shape[1]) / RATE
    return torch.sin(2 * math.pi * freq * t) + 0.1 * torch.randn(freq.shape), text


def features(audio):
    spec = torch.stft(
        audio, 256, hop_length=160, window=torch.hann_window(256), return_complex=True
    )
    return torch.log1p(spec.abs().pow(2)).transpose(1, 2)


class Recognizer(nn.Module):
    def __init__(self, width=160):
        super().__init__()
        self.norm = nn.LayerNorm(129)
        self.inp = nn.Conv1d(129, width, 5, padding=2)
        self.mid = nn.ModuleList(
            nn.Conv1d(width, width, 5, padding=2 * d, dilation=d) for d in (1, 2, 4)
        )
        self.out = nn.Conv1d(width, len(LETTERS) + 1, 1)

    def forward(self, x):
        h = self.inp(self.norm(x).transpose(1, 2)).relu()
        for conv in self.mid:
            h = h + conv(h).relu()
        return self.out(h).transpose(1, 2).log_softmax(-1)


def beam_search(log_probs, beam=6):
    """Prefix beam search without a language model."""
    beams = {(): (1.0, 0.0)}  # prefix -> probability ending in blank, in a letter
    for frame in log_probs.exp().tolist():
        nxt = {}
        for prefix, (pb, pl) in beams.items():
            b, c = nxt.get(prefix, (0.0, 0.0))
            nxt[prefix] = (
                b + (pb + pl) * frame[0],
                c + (pl * frame[prefix[-1]] if prefix else 0.0),
            )
            for k in range(1, len(frame)):
                new = (*prefix, k)
                b, c = nxt.get(new, (0.0, 0.0))
                nxt[new] = (b, c + frame[k] * (pb if prefix and k == prefix[-1] else pb + pl))
        best = sorted(nxt.items(), key=lambda kv: -sum(kv[1]))[:beam]
        norm = sum(best[0][1]) or 1.0
        beams = {p: (x / norm, y / norm) for p, (x, y) in best}
    return "".join(LETTERS[k - 1] for k in max(beams, key=lambda p: sum(beams[p])))


def edit_distance(a, b):
    d = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i in range(len(a) + 1):
        for j in range(len(b) + 1):
            if i == 0 or j == 0:
                d[i][j] = i + j
            else:
                d[i][j] = min(
                    d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] != b[j - 1])
                )
    return d[-1][-1]


model = Recognizer()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
ctc = nn.CTCLoss(zero_infinity=True)
watch = Watch()
for n in range(14):
    audio, text = utterances()
    watch("features")
    x = features(audio)
    watch("forward")
    log_probs = model(x)
    frames = torch.full((BATCH,), log_probs.shape[1])
    loss = ctc(log_probs.transpose(0, 1), text, frames, torch.full((BATCH,), CHARS))
    watch("backward")
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    watch("cer")
    refs = ["".join(LETTERS[c - 1] for c in row) for row in text[:4].tolist()]
    errors = sum(
        edit_distance(r, beam_search(p)) for r, p in zip(refs, log_probs.detach(), strict=False)
    )
    print(f"{n:2d}  ctc {loss.item():7.3f}  cer {errors / (len(refs) * CHARS):.3f}")
    watch.step()
watch.close()
