#!/usr/bin/env python3
"""Predictors of the shared exponent on recorded maxima, docs/experiments/predictors.md.

predictors.py FLEXLAB CIFAR TEXT FOLDER   trains what FOLDER lacks and collects; CIFAR is a folder of CIFAR-10, TEXT tinyshakespeare.txt
predictors.py FLEXLAB FOLDER              collects what FOLDER has into data/predictors-*.csv
predictors.py                             prints the tables of the page from these files
"""
import csv, math, os, subprocess, sys
import lab

PREDICTORS = ['paper', 'ngraph', 'per-class', 'amax', 'amax-recent', 'current', 'repeat']
FITTED = ['resnet20', 'vgg11', 'mlp2', 'gpt2x64', 'lstm-char']  # the rule of `repeat` was chosen on such trainings
OUTLIER = 100
JUMPS = 'resnet20'


def images(model, batch, steps, *more):
    return ['--model', model, '--batch', str(batch), '--train-limit', str(batch * steps), '--test-limit', '100', *more]


def text(model, batch, steps, *more):
    return ['--model', model, '--context', '64', '--batch', str(batch), '--train-limit', str(batch * 64 * steps + 1), '--test-limit',
            '1000', *more]


TRAININGS = {  # name: seed, images or text, arguments
    'resnet20': (1, images('resnet20', 16, 500)),
    'resnet20, lr 0.05': (2, images('resnet20', 16, 500, '--lr', '0.05')),
    'resnet8': (2, images('resnet8', 64, 500)),
    'cnn6': (1, images('cnn6', 16, 500)),
    'vgg11': (1, images('vgg11', 16, 250, '--lr', '0.01')),
    'alexnet': (3, images('alexnet', 16, 250, '--lr', '0.01')),
    'mobilenet': (1, images('mobilenet', 16, 500)),
    'mlp2': (1, images('mlp2', 32, 600)),
    'gpt2x64': (1, text('gpt2x64', 8, 400, '--lr', '0.002', '--warmup', '0.02')),
    'gpt2x32': (2, text('gpt2x32', 16, 600, '--lr', '0.002', '--warmup', '0.02')),
    'lstm-char': (1, text('lstm-char', 8, 500, '--lr', '0.003', '--warmup', '0.05')),
    'lstm-char again': (2, text('lstm-char', 8, 500, '--lr', '0.003', '--warmup', '0.05')),
    'gru-char': (1, text('gru-char', 8, 500, '--lr', '0.003', '--warmup', '0.05'))}
LIVE = {
    'resnet8, 200 steps of 32, lr 0.0005': images('resnet8', 32, 200, '--lr', '0.0005'),
    'gpt2x32, 150 steps of 256 tokens, lr 0.002': text('gpt2x32', 4, 150, '--lr', '0.002', '--warmup', '0.05'),
    'resnet8, 200 steps of 32, lr 0.1': images('resnet8', 32, 200, '--lr', '0.1')}
SEEDS = 3
ARMS = ['fp32', 'flex16+5:paper', 'flex16+5:repeat']


def place(folder, name):
    return os.path.join(folder, name.replace(', ', '.').replace(' ', '-'))


def trace(folder, name):
    return os.path.join(place(folder, name), f'trace-flex16+5-seed{TRAININGS[name][0]}.csv')


def train(flexlab, cifar, file, folder):
    os.makedirs(folder, exist_ok=True)
    for name, (seed, arguments) in TRAININGS.items():
        if not lab.complete(place(folder, name)):
            data = f'text:{file}' if '--context' in arguments else f'cifar10:{cifar}'
            lab.run(flexlab, arguments + ['--data', data, '--formats', 'flex16+5', '--seed-base', str(seed), '--epochs', '1',
                                          '--trace-every', '1'], place(folder, name))
    for name, arguments in LIVE.items():
        if not lab.complete(place(folder, name)):
            data = f'text:{file}' if '--context' in arguments else f'cifar10:{cifar}'
            lab.run(flexlab, arguments + ['--data', data, '--formats', ','.join(ARMS), '--seeds', str(SEEDS), '--epochs', '1',
                                          '--average-last', '50', '--no-trace'], place(folder, name))


def replay(flexlab, folder, names, *more):
    """A row for each training and predictor, over its tensors; unused bits weighted by writes, recoveries by how many there were."""
    with lab.scratch() as top:
        table = os.path.join(top, 'replay.csv')
        subprocess.run([flexlab, 'replay', *(trace(folder, name) for name in names), '--predictors', ','.join(PREDICTORS), '--csv', table,
                        *more], check=True, stdout=subprocess.DEVNULL)
        of = {trace(folder, name): name for name in names}
        sums = {}
        with open(table, encoding='utf-8', newline='') as f:
            for row in csv.DictReader(f):
                s = sums.setdefault((of[row['trace']], row['predictor']), dict.fromkeys(
                    ['writes', 'saturated', 'late', 'changes', 'repeated', 'outliers', 'recovered', 'unused_bits', 'recovery'], 0))
                for key in ['writes', 'saturated', 'late', 'changes', 'repeated', 'outliers', 'recovered']:
                    s[key] += int(row[key])
                s['unused_bits'] += float(row['unused_bits']) * int(row['writes'])
                s['recovery'] += float(row['recovery_mean']) * int(row['recovered'])
        return [{'training': name, 'predictor': p, **s, 'unused_bits': f'{s["unused_bits"] / s["writes"]:.5f}',
                 'recovery': f'{s["recovery"] / s["recovered"]:.5f}' if s['recovered'] else ''} for (name, p), s in sums.items()]


def jumps(folder, name):
    """By how many octaves a maximum exceeds the largest of the 16 before it, role by role: quantiles."""
    before, of = {}, {}
    with open(trace(folder, name), encoding='utf-8') as f:
        for row in csv.DictReader(f):
            maximum = float(row['maximum'])
            if row['tensor'] == 'input' or not 0 < maximum < math.inf:
                continue
            window = before.setdefault(row['tensor'], [])
            if len(window) == 16:
                of.setdefault(row['role'], []).append(math.log2(maximum / max(window)))
                window.pop(0)
            window.append(maximum)
    for role, values in of.items():
        values.sort()
        yield {'role': role, 'writes': len(values), **{f'q{q}': f'{values[min(len(values) - 1, int(q / 100 * len(values)))]:.4f}'
                                                       for q in [50, 99, 99.9]}, 'largest': f'{values[-1]:.4f}'}


def collect(flexlab, folder):
    names = [name for name in TRAININGS if lab.complete(place(folder, name))]
    if not names:
        sys.exit(f'{folder}: no finished training')
    lab.write('predictors-counts.csv', replay(flexlab, folder, names))
    lab.write('predictors-outliers.csv', replay(flexlab, folder, names, '--outliers', str(OUTLIER)))
    if JUMPS in names:
        lab.write('predictors-jumps.csv', list(jumps(folder, JUMPS)))
    live = [{'training': name, 'format': r['format'], 'seed': r['seed'], 'last_loss': r['last_loss'], 'test_loss': r['test_loss'],
             'saturated': r['saturated'], 'flushed': r['flushed'], 'step_seconds': f'{r["step_seconds"]:.6f}'}
            for name in LIVE if lab.complete(place(folder, name)) for r in lab.lines(place(folder, name), 'run')]
    if live:
        lab.write('predictors-live.csv', live)


def whole(x):
    return f'{int(x):,}'


def tables():
    counts = {(r['training'], r['predictor']): r for r in lab.read('predictors-counts.csv')}
    names = list(dict.fromkeys(name for name, _ in counts))
    at = lambda key, p, which: sum(int(counts[n, p][key]) for n in which)
    weighted = lambda key, p, which: sum(float(counts[n, p][key]) * int(counts[n, p]['writes']) for n in which) / at('writes', p, which)
    print(f'octaves above the largest of the 16 maxima before, {JUMPS}')
    lab.markdown(['role', 'writes', 'median', '99 %', '99.9 %', 'largest'],
                 [[r['role'], whole(r['writes'])] + [lab.signed(float(r[k]), 2) for k in ['q50', 'q99', 'q99.9', 'largest']]
                  for r in lab.read('predictors-jumps.csv')])
    print('saturated writes, those after 50 steps, unused bits; writes run again')
    cell = lambda n, p: (f'{whole(counts[n, p]["saturated"])}, {whole(counts[n, p]["late"])}, '
                         f'{float(counts[n, p]["unused_bits"]):.2f}')
    again = lambda n, p: f'{100 * int(counts[n, p]["repeated"]) / int(counts[n, p]["writes"]):.2f} %'
    lab.markdown(['training', 'writes', '`paper`', '`ngraph`', '`per-class`', '`repeat`', 'again under `repeat`', 'under `current`'],
                 [[n + (' (fitted)' if n in FITTED else ''), whole(counts[n, 'paper']['writes'])] +
                  [cell(n, p) for p in ['paper', 'ngraph', 'per-class', 'repeat']] + [again(n, 'repeat'), again(n, 'current')]
                  for n in names])
    outliers = {(r['training'], r['predictor']): r for r in lab.read('predictors-outliers.csv')}
    for which, told in [(names, 'all'), ([n for n in names if n in FITTED], 'fitted'), ([n for n in names if n not in FITTED], 'others')]:
        rows = []
        for p in PREDICTORS:
            writes, lost, late = at('writes', p, which), at('saturated', p, which), at('late', p, which)
            recovered = sum(int(outliers[n, p]['recovered']) for n in which)
            outlying = sum(int(outliers[n, p]['outliers']) for n in which)
            recovery = sum(float(outliers[n, p]['recovery'] or 0) * int(outliers[n, p]['recovered']) for n in which)
            second = at('repeated', p, which)
            rows.append([f'`{p}`', f'{whole(lost)} ({100 * lost / writes:.3f} %)', whole(late), f'{weighted("unused_bits", p, which):.2f}',
                         f'{100 * second / writes:.2f} %' if second else '–', f'{recovery / recovered:.1f}',
                         f'{100 * (1 - recovered / outlying):.1f} %'])
        print(f'{told}: {len(which)} trainings, {whole(at("writes", PREDICTORS[0], which))} writes')
        lab.markdown([f'predictor, {told} {len(which)}', 'saturated writes', 'after 50 steps', 'unused bits', 'run again',
                      f'writes until 11 bits are kept after an outlier of {OUTLIER} times', 'not before the next'], rows)
    live = {(r['training'], r['format'], int(r['seed'])): r for r in lab.read('predictors-live.csv')}
    print('in training: minus fp32')
    rows = []
    for name in LIVE:
        row = [name]
        for arm in ARMS[1:]:
            d = [float(live[name, arm, s]['last_loss']) - float(live[name, 'fp32', s]['last_loss']) for s in range(1, SEEDS + 1)]
            row.append(f'{lab.spread(d, 5, True)} ({lab.p_text(d)})')
        of = lambda arm, key: [float(live[name, arm, s][key]) for s in range(1, SEEDS + 1)]
        row += [', '.join(f'{sum(of(arm, "saturated")):.0f}' for arm in ARMS[1:]),
                f'{sum(of(ARMS[2], "flushed")) / sum(of(ARMS[1], "flushed")):.2f}',
                f'{lab.mean(of(ARMS[2], "step_seconds")) / lab.mean(of(ARMS[1], "step_seconds")):.2f}']
        rows.append(row)
    lab.markdown(['training', '`paper`, mean ± sd (p)', '`repeat`', 'saturated, `paper`, `repeat`', 'flushed, `repeat` to `paper`',
                  'time of a step, `repeat` to `paper`'], rows)


if __name__ == '__main__':
    if len(sys.argv) == 5:
        train(*sys.argv[1:])
        collect(sys.argv[1], sys.argv[4])
    elif len(sys.argv) == 3:
        collect(*sys.argv[1:])
    elif len(sys.argv) == 1:
        tables()
    else:
        sys.exit(__doc__)
