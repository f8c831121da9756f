#!/usr/bin/env python3
"""Experiment 1, docs/experiments/resnet20.md.

resnet20.py FLEXLAB DATA FOLDER   trains what FOLDER lacks, one format and seed after the other, goes on with what was
                                  interrupted, and collects (hours: it may be stopped and started again)
resnet20.py FOLDER                adds what FOLDER has to data/resnet20-*.csv, in place of what stood there
resnet20.py                       prints the tables of the page from these files and draws its figure
"""
import os, subprocess, sys
import lab

FORMATS = ['fp32', 'bf16', 'fp16:noscale', 'policy:O1', 'policy:O2', 'flex16+5', 'dfp16', 'policy:dfp16']
SEEDS = [1, 2, 3]
EPOCHS = 12
PAIRED = ['fp32', 'bf16', 'fp16', 'flex16+5', 'dfp16']


def place(folder, name, seed):
    return os.path.join(folder, f'{name.replace(":", "_")}.{seed}')


def train(flexlab, data, folder):
    os.makedirs(folder, exist_ok=True)
    for seed in SEEDS:
        for name in FORMATS:
            out = place(folder, name, seed)
            if lab.complete(out):
                continue
            how = ['--policy', name[7:]] if name.startswith('policy:') else ['--format', name]
            if os.path.isdir(os.path.join(out, 'flexlab.resume')):
                command = [flexlab, 'train', '--resume', out]
            else:
                command = [flexlab, 'train', '--model', 'resnet20', '--data', data, '--epochs', str(EPOCHS), '--batch', '128',
                           '--seed-base', str(seed)] + how + ['--out', out]
            print(' '.join(['flexlab'] + command[1:]), file=sys.stderr, flush=True)
            if subprocess.run(command + ['--quiet', '--allow-divergence'], stdout=subprocess.DEVNULL).returncode:
                sys.exit(f'{out}: flexlab failed')
    out = os.path.join(folder, 'paired')
    if not lab.complete(out):
        lab.run(flexlab, ['--model', 'resnet8', '--data', data, '--train-limit', '25000', '--formats', ','.join(PAIRED), '--epochs',
                          '3', '--batch', '128', '--lr', '5e-4', '--seeds', '3'], out)


def collect(folder):
    """What FOLDER has takes the place of what the files had; other trainings stay (bits are the same on every machine)."""
    runs, epochs = [], []
    kept = {name: lab.read(name) if os.path.isfile(os.path.join(lab.HERE, 'data', name)) else []
            for name in ('resnet20-runs.csv', 'resnet20-epochs.csv')}
    for name in FORMATS:
        for seed in SEEDS:
            out = place(folder, name, seed)
            if lab.complete(out):
                runs += lab.results(out)
                epochs += [{'format': e['format'], 'seed': e['seed'], 'epoch': e['epoch'], 'train_loss': e['train_loss'],
                            'test_loss': e['test_loss'], 'test_accuracy': e['test_accuracy']} for e in lab.lines(out, 'epoch')]
            else:
                for rows, file in ((runs, 'resnet20-runs.csv'), (epochs, 'resnet20-epochs.csv')):
                    rows += [r for r in kept[file] if (r['format'], r['seed']) == (name, str(seed))]
    if not runs:
        sys.exit(f'{folder}: no finished training')
    lab.write('resnet20-runs.csv', runs)
    lab.write('resnet20-epochs.csv', epochs)
    if lab.complete(os.path.join(folder, 'paired')):
        lab.write('resnet20-paired.csv', lab.results(os.path.join(folder, 'paired')))


def differences(of, name, key, scale, digits):
    """Seed by seed to fp32, their mean and p; nothing for fp32 itself."""
    if name == 'fp32':
        return ['', '']
    d = [scale * (float(of[name, s][key]) - float(of['fp32', s][key])) for s in SEEDS if (name, s) in of and ('fp32', s) in of]
    p = f' ({lab.p_text(d)})' if len(d) > 1 else ''
    return [', '.join(lab.signed(x, digits) for x in d), f'{lab.spread(d, digits, True)}{p}' if len(d) > 1 else '']


def of_format(of, name):
    return [of[name, s] for s in SEEDS if (name, s) in of]


def tables():
    of = {(r['format'], int(r['seed'])): r for r in lab.read('resnet20-runs.csv')}
    names = [n for n in FORMATS if of_format(of, n)]
    percent = lambda r: 100 * float(r['test_accuracy'])
    lab.markdown(['format', 'test accuracy, seed by seed, %', 'mean ± sd', 'minus fp32, points', 'mean ± sd (p)'],
                 [[n, ', '.join(f'{percent(r):.2f}' for r in of_format(of, n)),
                   lab.spread([percent(r) for r in of_format(of, n)], 2)] + differences(of, n, 'test_accuracy', 100, 2) for n in names])
    lab.markdown(['format', 'training loss, last 100 steps', 'minus fp32', 'mean ± sd (p)', 'test loss'],
                 [[n, lab.spread([float(r['last_loss']) for r in of_format(of, n)], 4)] + differences(of, n, 'last_loss', 1, 4) +
                  [lab.spread([float(r['test_loss']) for r in of_format(of, n)], 4)] for n in names])
    lab.markdown(['format', 'elements saturated', 'flushed to zero', 'steps skipped'],
                 [[n, ', '.join(f'{int(r["saturated"]):,}' for r in of_format(of, n)),
                   ', '.join(f'{100 * int(r["flushed"]) / int(r["elements"]):.2f} %' for r in of_format(of, n)),
                   ', '.join(r['skipped'] for r in of_format(of, n))] for n in names])
    if not os.path.isfile(os.path.join(lab.HERE, 'data', 'resnet20-paired.csv')):
        return
    of = {(r['format'], int(r['seed'])): r for r in lab.read('resnet20-paired.csv')}
    lab.markdown(['format', 'loss, last 100 steps', 'minus fp32 at the low rate', 'paired mean ± sd (p)'],
                 [[n, lab.spread([float(r['last_loss']) for r in of_format(of, n)], 5)] + differences(of, n, 'last_loss', 1, 5)
                  for n in PAIRED])


def figure():
    rows = lab.read('resnet20-epochs.csv')
    names = [n for n in FORMATS if any(r['format'] == n for r in rows)]
    colours = ['#000000', '#e69f00', '#d55e00', '#cc79a7', '#7b3294', '#0072b2', '#009e73', '#56b4e9']
    text, plots = '', []
    for i, name in enumerate(names):
        text += f'$f{i} << EOD\n'
        for epoch in range(1, EPOCHS + 1):
            at = [100 * float(r['test_accuracy']) for r in rows if r['format'] == name and int(r['epoch']) == epoch]
            if at:  # a training that diverged has fewer
                text += f'{epoch} {lab.mean(at):.4f}\n'
        text += 'EOD\n'
        plots.append(f'$f{i} with linespoints lc rgb "{colours[FORMATS.index(name)]}" pt {4 + i} ps 0.6 lw 1.5 title "{name}"')
    lab.plot(text + 'set terminal svg size 760,420 font "sans,12" background "#ffffff"\nset border 3\nset tics nomirror\n'
             'set grid ytics lc "#dddddd"\nset key bottom right noenhanced\nset xrange [0.5:12.5]\nset xtics 1\nset xlabel "epoch"\n'
             'set ylabel "test accuracy, %, mean over seeds"\nplot ' + ', '.join(plots) + '\n', 'resnet20.svg')


if __name__ == '__main__':
    if len(sys.argv) == 4:
        train(*sys.argv[1:])
        collect(sys.argv[3])
    elif len(sys.argv) == 2:
        collect(sys.argv[1])
    elif len(sys.argv) != 1:
        sys.exit(__doc__)
    tables()
    figure()
