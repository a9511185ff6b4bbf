#!/usr/bin/env python
"""Old-school argparse script from an embedded-vision group: distil a ResNet-18 teacher into a small
student.

KL between softened outputs plus cross-entropy; images are synthetic.
"""

import argparse

import torch
import torch.nn as nn
import torch.nn.functional as fn
import torchvision
from instrument_me import Watch


def get_args():
    parser = argparse.ArgumentParser(description="knowledge distillation")
    parser.add_argument("-b", "--batch-size", default=16, type=int)
    parser.add_argument("--iters", default=14, type=int)
    parser.add_argument("--lr", default=0.02, type=float)
    parser.add_argument("-T", "--temperature", default=4.0, type=float)
    parser.add_argument("--alpha", default=0.7, type=float)
    parser.add_argument("--num-classes", default=10, type=int)
    parser.add_argument("--image-size", default=64, type=int)
    parser.add_argument("--threads", default=1, type=int)
    parser.add_argument("--print-freq", default=5, type=int)
    return parser.parse_args()


class Student(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 24, 3, 2, 1),
            nn.BatchNorm2d(24),
            nn.ReLU(inplace=True),
            nn.Conv2d(24, 48, 3, 2, 1),
            nn.BatchNorm2d(48),
            nn.ReLU(inplace=True),
            nn.Conv2d(48, 96, 3, 2, 1),
            nn.BatchNorm2d(96),
            nn.ReLU(inplace=True),
        )
        self.classifier = nn.Linear(96, num_classes)

    def forward(self, x):
        return self.classifier(self.features(x).mean((2, 3)))


def main():
    args = get_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(99)

    train_x = torch.randn(300, 3, args.image_size, args.image_size)
    train_y = torch.randint(0, args.num_classes, (300,))
    teacher = torchvision.models.resnet18(weights=None, num_classes=args.num_classes)
    teacher.eval()
    student = Student(args.num_classes)
    optimizer = torch.optim.SGD(student.parameters(), args.lr, momentum=0.9, weight_decay=1e-4)

    watch = Watch()
    for it in range(args.iters):
        pick = torch.randperm(len(train_x))[: args.batch_size]
        images, target = train_x[pick], train_y[pick]

        watch("teacher")
        with torch.no_grad():
            soft = fn.softmax(teacher(images) / args.temperature, dim=1)

        watch("student")
        output = student(images)
        kd = fn.kl_div(
            fn.log_softmax(output / args.temperature, dim=1), soft, reduction="batchmean"
        )
        loss = args.alpha * args.temperature**2 * kd + (1 - args.alpha) * fn.cross_entropy(
            output, target
        )

        watch("backward")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

        if it % args.print_freq == 0:
            print(f"Iter: [{it}/{args.iters}]\tLoss {loss.item():.4f}\tKD {kd.item():.4f}")
        watch.step()
    watch.close()


if __name__ == "__main__":
    main()
