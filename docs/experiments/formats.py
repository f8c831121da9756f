#!/usr/bin/env python3
"""Experiment 10, docs/experiments/formats.md.

formats.py FLEXLAB DATA TEXT FOLDER   trains what FOLDER lacks and collects; DATA is cifar10:DIR, TEXT tinyshakespeare.txt
formats.py FOLDER                     collects what FOLDER has into data/formats-runs.csv
formats.py                            prints the tables of the page from this file
"""
import os, sys
import lab

# The formats of a group train side by side; each group has a folder of its own, so that one can be added later.
GROUPS = {
    'sixteen': ['fp32', 'bf16', 'flex16+5'],
    'narrow': ['flex12+5', 'flex8+5', 'dfp8'],
    'bytes': ['mxint8', 'hbfp8'],
    'floats': ['mxfp8', 'mxfp8-floor', 'nvfp4', 'fp8'],
    'scaled': ['fp8-delayed', 'fp8-current'],
}
POLICIES = {  # those that have no name of their own: FP8 without scales but that of the loss
    'fp8': 'variant fp32\nif-any @product operands=e4m3fn gradient-operands=e5m2 result=fp32\nloss-scale dynamic\n',
}
WORKS = {  # model, peak rate
    ('resnet20', '0.02'): ['--batch', '64', '--test-limit', '5000', '--warmup', '0.05'],
    ('resnet8', '0.02'): ['--batch', '32', '--train-limit', '12800', '--test-limit', '5000', '--warmup', '0.05'],
    ('gpt2x64', '0.002'): ['--context', '64', '--batch', '16', '--train-limit', str(800 * 16 * 64), '--test-limit', '20000',
                           '--warmup', '0.05'],
}
STEPS = {'resnet20': 781, 'resnet8': 400, 'gpt2x64': 800}
SEEDS = [1, 2, 3]
PAIRS = [('mxint8', 'mxfp8'), ('mxint8', 'mxfp8-floor'), ('mxfp8', 'mxfp8-floor'), ('mxint8', 'hbfp8'), ('dfp8', 'mxint8'),
         ('fp8-delayed', 'fp8-current'), ('fp8-delayed', 'mxfp8')]


def place(folder, model, rate, group):
    return os.path.join(folder, f'{model}.{rate}.{group}')


def text_of(name, folder):
    """What stands in --formats: a name, or a file with the policy."""
    if name not in POLICIES:
        return name
    path = os.path.join(folder, name + '.policy')
    with open(path, 'w', encoding='utf-8') as f:
        f.write(POLICIES[name])
    return path


def name_of(result):
    name = result['format'].removeprefix('policy:')
    return os.path.basename(name).removesuffix('.policy')


def train(flexlab, data, text, folder):
    os.makedirs(folder, exist_ok=True)
    for (model, rate), options in WORKS.items():
        for group, formats in GROUPS.items():
            out = place(folder, model, rate, group)
            if not lab.complete(out):
                source = f'text:{text}' if model.startswith('gpt') else data
                lab.run(flexlab, ['--model', model, '--data', source, '--formats', ','.join(text_of(f, folder) for f in formats), '--seeds', str(len(SEEDS)),
                                  '--epochs', '1', '--lr', rate, '--average-last', '50', '--no-trace', '--allow-divergence'] + options, out)


def collect(folder):
    rows = [{'model': model, 'rate': rate} | r | {'format': name_of(r)} for model, rate in WORKS for group in GROUPS
            if lab.complete(place(folder, model, rate, group)) for r in lab.results(place(folder, model, rate, group))]
    if not rows:
        sys.exit(f'{folder}: no finished training')
    lab.write('formats-runs.csv', rows)


def differences(of, model, rate, name, base, key='last_loss'):
    return [float(of[model, rate, name, s][key]) - float(of[model, rate, base, s][key]) for s in SEEDS]


def tables():
    of = {(r['model'], r['rate'], r['format'], int(r['seed'])): r for r in lab.read('formats-runs.csv')}
    for model, rate in WORKS:
        there = [f for formats in GROUPS.values() for f in formats if (model, rate, f, SEEDS[0]) in of]
        rows = []
        for name in there:
            runs = [of[model, rate, name, s] for s in SEEDS]
            lost = sum(int(r['diverged']) for r in runs)
            d = [] if lost or name == 'fp32' else differences(of, model, rate, name, 'fp32')
            score = [float(r['test_accuracy']) * 100 for r in runs] if model.startswith('resnet') else [float(r['test_loss']) for r in runs]
            rows.append([name, '–' if lost else lab.spread([float(r['last_loss']) for r in runs], 4),
                         ', '.join(lab.signed(x, 4) for x in d), lab.spread(d, 4, True) if d else '', lab.p_text(d) if d else '',
                         '–' if lost else lab.spread(score, 2 if model.startswith('resnet') else 4),
                         f'{lost} of {len(runs)}' if lost else '0'])
        print(f'{model}, peak rate {rate}, {STEPS[model]} steps')
        lab.markdown(['format', 'loss, last 50 steps', 'minus fp32, seed by seed', 'mean ± sd', 'p',
                      'test accuracy, %' if model.startswith('resnet') else 'test loss', 'diverged'], rows)
        rows = []
        for a, b in PAIRS:
            if a in there and b in there and not any(int(of[model, rate, n, s]['diverged']) for n in (a, b) for s in SEEDS):
                d = differences(of, model, rate, a, b)
                rows.append([f'{a} − {b}', ', '.join(lab.signed(x, 4) for x in d), lab.spread(d, 4, True), lab.p_text(d)])
        if rows:
            lab.markdown(['loss, last 50 steps', 'seed by seed', 'mean ± sd', 'p'], rows)


if __name__ == '__main__':
    if len(sys.argv) == 5:
        train(*sys.argv[1:])
        collect(sys.argv[4])
    elif len(sys.argv) == 2:
        collect(sys.argv[1])
    elif len(sys.argv) == 1:
        tables()
    else:
        sys.exit(__doc__)
