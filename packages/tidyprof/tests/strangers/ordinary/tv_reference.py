"""Classification in the manner of torchvision's references: train_one_epoch, MetricLogger, evaluate
each epoch.
"""

import argparse
import datetime
import time
from collections import defaultdict, deque

import torch
import torchvision
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class SmoothedValue:
    def __init__(self, window_size=20, fmt="{median:.4f} ({global_avg:.4f})"):
        self.deque, self.total, self.count, self.fmt = deque(maxlen=window_size), 0.0, 0, fmt

    def update(self, value, n=1):
        self.deque.append(value)
        self.count += n
        self.total += value * n

    @property
    def median(self):
        return torch.tensor(list(self.deque)).median().item()

    @property
    def global_avg(self):
        return self.total / self.count

    def __str__(self):
        return self.fmt.format(median=self.median, global_avg=self.global_avg, value=self.deque[-1])


class MetricLogger:
    def __init__(self, delimiter="  "):
        self.meters, self.delimiter = defaultdict(SmoothedValue), delimiter

    def update(self, **values):
        for name, value in values.items():
            self.meters[name].update(value.item() if isinstance(value, torch.Tensor) else value)

    def __str__(self):
        return self.delimiter.join(f"{name}: {meter}" for name, meter in self.meters.items())

    def log_every(self, iterable, print_freq, header):
        start_time = end = time.time()
        iter_time, data_time = SmoothedValue(fmt="{value:.4f}"), SmoothedValue(fmt="{value:.4f}")
        for i, obj in enumerate(iterable):
            data_time.update(time.time() - end)
            yield obj
            iter_time.update(time.time() - end)
            if i % print_freq == 0:
                eta = datetime.timedelta(seconds=int(iter_time.global_avg * (len(iterable) - i)))
                print(
                    f"{header} [{i}/{len(iterable)}]  eta: {eta}  {self}  time: {iter_time}  data: {data_time}"
                )
            end = time.time()
        print(f"{header} Total time: {datetime.timedelta(seconds=int(time.time() - start_time))}")


def accuracy(output, target):
    return (output.argmax(1) == target).float().mean() * 100


def train_one_epoch(model, criterion, optimizer, loader, device, epoch):
    model.train()
    logger = MetricLogger()
    for image, target in logger.log_every(loader, 5, f"Epoch: [{epoch}]"):
        image, target = image.to(device), target.to(device)
        output = model(image)
        loss = criterion(output, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        logger.update(loss=loss, acc1=accuracy(output, target), lr=optimizer.param_groups[0]["lr"])


def evaluate(model, criterion, loader, device):
    model.eval()
    logger = MetricLogger()
    with torch.inference_mode():
        for image, target in logger.log_every(loader, 50, "Test:"):
            image, target = image.to(device), target.to(device)
            output = model(image)
            logger.update(loss=criterion(output, target), acc1=accuracy(output, target))
    print(f"Test:  Acc@1 {logger.meters['acc1'].global_avg:.3f}")


def flags(count, seed):
    """Pictures with three stripes each; the class is in their colours."""
    generator = torch.Generator().manual_seed(seed)
    target = torch.randint(8, (count,), generator=generator)
    stripes = (
        torch.stack([target & 1, (target >> 1) & 1, (target >> 2) & 1], 1)
        .float()
        .repeat_interleave(16, 1)
    )
    image = stripes[:, None, :, None].expand(-1, 3, -1, 48)
    return TensorDataset(image + 0.8 * torch.randn(image.shape, generator=generator), target)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--full-test", action="store_true", help="evaluate on all pictures, not on a tenth"
    )
    args = parser.parse_args()
    torch.manual_seed(4)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    loader = DataLoader(flags(16 * 18, 1), batch_size=16, shuffle=True)
    loader_test = DataLoader(flags(1200 if args.full_test else 64, 2), batch_size=16)
    model = torchvision.models.resnet18(num_classes=8).to(device)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-4)
    lr_scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.3)
    for epoch in range(5):
        train_one_epoch(model, criterion, optimizer, loader, device, epoch)
        lr_scheduler.step()
        evaluate(model, criterion, loader_test, device)


if __name__ == "__main__":
    main()
