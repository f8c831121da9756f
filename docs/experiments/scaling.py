#!/usr/bin/env python3
"""Experiment 12, docs/experiments/scaling.md.

scaling.py FLEXLAB DATA TEXT FOLDER   trains what FOLDER lacks and collects; DATA is cifar10:DIR, TEXT tinyshakespeare.txt
scaling.py FOLDER                     collects what FOLDER has into data/scaling-runs.csv
scaling.py                            prints the tables of the page from this file
"""
import math, os, sys
import lab

FORMATS = {'flex16+5': 32767, 'flex8+5': 127, 'tensor:e4m3fn': 448}  # the operands of products, and the largest element
OF_MANTISSAS, OF_FLOATS = ['paper', 'amax', 'amax-recent', 'current'], ['ngraph', 'paper', 'delayed', 'current', 'repeat']
PREDICTORS = {'flex16+5': OF_MANTISSAS, 'flex8+5': OF_MANTISSAS, 'tensor:e4m3fn': OF_FLOATS}
WORKS = {  # model, peak rate
    ('resnet8', '0.02'): ['--batch', '32', '--train-limit', '25600', '--test-limit', '5000', '--warmup', '0.05'],
    ('gpt2x64', '0.002'): ['--context', '64', '--batch', '16', '--train-limit', str(800 * 16 * 64), '--test-limit', '20000',
                           '--warmup', '0.05'],
}
STEPS, SEEDS, EARLY = 800, [1, 2, 3], 50


def plain(name):
    return name.replace('+', '-').replace(':', '-')


def file_of(format, predictor):
    return f'{plain(format)}-{predictor}.policy'


def place(folder, model, rate, group):
    return os.path.join(folder, f'{model}.{rate}.{plain(group)}')


def train(flexlab, data, text, folder):
    os.makedirs(folder, exist_ok=True)
    for (model, rate), options in WORKS.items():
        source = f'text:{text}' if model.startswith('gpt') else data
        for format in FORMATS:
            policies = []
            for predictor in PREDICTORS[format]:
                policies.append(os.path.join(folder, file_of(format, predictor)))
                with open(policies[-1], 'w', encoding='utf-8') as f:
                    f.write(f'variant fp32\nif-any @product operands={format}:{predictor} result=fp32\n')
            out = place(folder, model, rate, format)
            if not lab.complete(out):
                lab.run(flexlab, ['--model', model, '--data', source, '--formats', ','.join(['fp32'] + policies), '--seeds',
                                  str(len(SEEDS)), '--epochs', '1', '--lr', rate, '--average-last', '50', '--trace-every', '1',
                                  '--allow-divergence'] + options, out)


def count(out, name, seed, largest):
    """Of the traces of a run: writes, those that saturate after the first steps, and mean unused bits."""
    writes = early = late = 0
    unused = 0.0
    for row in lab.table(out, 'trace', name, seed):
        if row['tensor'].startswith('input.'):
            continue
        maximum, e, step = float(row['maximum']), int(row['e']), int(row['step'])
        writes += 1
        early += int(row['saturated']) > 0 and step <= EARLY
        late += int(row['saturated']) > 0 and step > EARLY
        if maximum > 0:
            unused += max(0.0, math.log2(largest) - math.log2(maximum) - e)
    return {'writes': writes, 'saturated_early': early, 'saturated_late': late, 'unused_bits': f'{unused / writes:.4f}'}


def collect(folder):
    rows = []
    for model, rate in WORKS:
        for format, largest in FORMATS.items():
            out = place(folder, model, rate, format)
            if not lab.complete(out):
                continue
            for r in lab.results(out):
                base = {'model': model, 'operands': format, 'predictor': 'fp32'}
                counts = {'writes': '', 'saturated_early': '', 'saturated_late': '', 'unused_bits': ''}
                if r['format'] != 'fp32':
                    base['predictor'] = next(p for p in PREDICTORS[format] if r['format'].endswith(file_of(format, p)))
                    counts = count(out, r['format'], r['seed'], largest)
                rows.append(base | {k: r[k] for k in ('seed', 'diverged', 'last_loss', 'test_loss', 'test_accuracy', 'saturated', 'flushed',
                                                      'elements')} | counts)
    if not rows:
        sys.exit(f'{folder}: no finished training')
    lab.write('scaling-runs.csv', rows)


def tables():
    of = {(r['model'], r['operands'], r['predictor'], int(r['seed'])): r for r in lab.read('scaling-runs.csv')}
    for model, rate in WORKS:
        body = []
        for format in FORMATS:
            for name in PREDICTORS[format]:
                if (model, format, name, SEEDS[0]) not in of:
                    continue
                runs = [of[model, format, name, s] for s in SEEDS]
                lost = sum(int(r['diverged']) for r in runs)
                d = [] if lost else [float(r['last_loss']) - float(of[model, format, 'fp32', s]['last_loss']) for s, r in zip(SEEDS, runs)]
                writes = sum(int(r['writes']) for r in runs)
                percent = [f'{100 * sum(int(r[k]) for r in runs) / writes:.3f} %' for k in ('saturated_early', 'saturated_late')]
                flushed = 100 * sum(int(r['flushed']) for r in runs) / sum(int(r['elements']) for r in runs)
                body.append([format, f'`{name}`'] + percent + [lab.spread([float(r['unused_bits']) for r in runs], 2), f'{flushed:.2f} %',
                             f'{lost} of {len(runs)} diverged' if lost else ', '.join(lab.signed(x, 4) for x in d),
                             '–' if lost else f'{lab.spread(d, 4, True)} ({lab.p_text(d)})'])
        print(f'{model}, peak rate {rate}, {STEPS} steps')
        lab.markdown(['operands', 'exponent by', f'writes that saturate, steps 1 to {EARLY}', 'later', 'unused bits', 'flushed elements',
                      'loss minus fp32', 'mean ± sd (p)'], body)


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
