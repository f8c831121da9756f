#!/usr/bin/env python3
"""Experiment 11, docs/experiments/accumulators.md.

accumulators.py FLEXLAB EXAMPLE TEXT FOLDER   EXAMPLE is example_accumulators; trains what FOLDER lacks and collects
accumulators.py                               prints the tables of the page from data/accumulators-*.csv
"""
import csv, os, subprocess, sys
import lab

SEEDS, STEPS, RATE = [1, 2, 3], 400, '0.0005'
FP8 = 'variant fp32\nif-any @product operands=e4m3fn result=fp32\nloss-scale 2^10'
GROUPS = {  # a name, and the lines of its policy
    'fp16': {'fp16': 'preset O2', 'fp16 v100': 'preset O2\naccumulate v100', 'fp16 a100': 'preset O2\naccumulate a100',
             'fp16 h100': 'preset O2\naccumulate h100'},
    'fp8': {'fp8': FP8, 'fp8 ada': FP8 + '\naccumulate ada', 'fp8 h100': FP8 + '\naccumulate h100',
            'fp8 h100 promote 128': FP8 + '\naccumulate h100:promote=128', 'fp8 b200': FP8 + '\naccumulate b200'},
}


def file_of(name):
    return name.replace(' ', '-') + '.policy'


def train(flexlab, example, text, folder):
    os.makedirs(folder, exist_ok=True)
    sums = [row for seed in SEEDS for row in sums_of(example, seed)]
    lab.write('accumulators-sums.csv', sums)
    rows = []
    for group in GROUPS:
        out = os.path.join(folder, group)
        for name, lines in GROUPS[group].items():
            with open(os.path.join(folder, file_of(name)), 'w', encoding='utf-8') as f:
                f.write(lines + '\n')
        if not lab.complete(out):
            policies = [os.path.join(folder, file_of(name)) for name in GROUPS[group]]
            lab.run(flexlab, ['--model', 'gpt2x64', '--context', '64', '--batch', '16', '--data', f'text:{text}', '--train-limit',
                              str(STEPS * 16 * 64), '--test-limit', '20000', '--formats', ','.join(['fp32'] + policies), '--seeds',
                              str(len(SEEDS)), '--epochs', '1', '--lr', RATE, '--warmup', '0.05', '--average-last', '50', '--no-trace',
                              '--allow-divergence'], out)
        for r in lab.results(out):
            name = 'fp32' if r['format'] == 'fp32' else next(n for n in GROUPS[group] if r['format'].endswith(file_of(n)))
            rows.append({'group': group, 'name': name} | {k: r[k] for k in ('seed', 'diverged', 'last_loss', 'test_loss')})
    lab.write('accumulators-runs.csv', rows)


def sums_of(example, seed):
    done = subprocess.run([example, str(seed)], stdout=subprocess.PIPE, text=True, check=True)
    return [{'seed': seed} | row for row in csv.DictReader(done.stdout.splitlines())]


def number(x):
    """1.2e-05 as 1.2·10⁻⁵."""
    digits, exponent = f'{x:.1e}'.split('e')
    return '0' if x == 0 else digits + '·10' + str(int(exponent)).translate(str.maketrans('-0123456789', '⁻⁰¹²³⁴⁵⁶⁷⁸⁹'))


def tables():
    rows = lab.read('accumulators-sums.csv')
    ks = sorted({int(r['k']) for r in rows})
    for format in dict.fromkeys(r['format'] for r in rows):
        for data in ('normal', 'positive'):
            of = lambda name, k, key: lab.mean([float(r[key]) for r in rows if (r['format'], r['data'], int(r['k'])) == (format, data, k)
                                               and name in (None, r['class'])])
            names = list(dict.fromkeys(r['class'] for r in rows if r['format'] == format))
            print(f'{format}, {data} numbers')
            lab.markdown(['k'] + [str(k) for k in ks],
                         [[f'`{name.removeprefix("accumulate=")}`'] + [number(of(name, k, 'error')) for k in ks] for name in names] +
                         [['rounding the operands'] + [number(of(None, k, 'operands')) for k in ks]])
    runs = {(r['group'], r['name'], int(r['seed'])): r for r in lab.read('accumulators-runs.csv')}
    for group, names in GROUPS.items():
        if (group, 'fp32', SEEDS[0]) not in runs:
            continue
        loss = {n: [float(runs[group, n, s]['last_loss']) for s in SEEDS] for n in ['fp32'] + list(names)}
        first = next(iter(names))
        minus = lambda n, base: [a - b for a, b in zip(loss[n], loss[base])]
        lab.markdown(['policy', 'loss, last 50 steps', 'minus fp32, seed by seed', 'mean ± sd (p)', f'minus {first}, seed by seed',
                      'mean ± sd (p)'],
                     [[n, lab.spread(loss[n], 5)] + (['', ''] if n == 'fp32' else [
                         ', '.join(lab.signed(x, 5) for x in minus(n, 'fp32')), f'{lab.spread(minus(n, "fp32"), 5, True)} ({lab.p_text(minus(n, "fp32"))})'])
                      + (['', ''] if n in ('fp32', first) else [
                          ', '.join(lab.signed(x, 5) for x in minus(n, first)), f'{lab.spread(minus(n, first), 5, True)} ({lab.p_text(minus(n, first))})'])
                      for n in ['fp32'] + list(names)])


if __name__ == '__main__':
    if len(sys.argv) == 5:
        train(*sys.argv[1:])
    elif len(sys.argv) == 1:
        tables()
    else:
        sys.exit(__doc__)
