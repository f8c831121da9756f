#!/usr/bin/env python3
"""Experiment 2, docs/experiments/underflow.md.

underflow.py FLEXLAB DATA FOLDER   trains what FOLDER lacks and collects
underflow.py FOLDER                collects what FOLDER has into data/underflow-runs.csv, -depths.csv and -layers.csv
underflow.py                       prints the tables of the page from these files
"""
import math, os, sys
import lab

FORMATS = ['fp32', 'bf16', 'fp16:noscale', 'fp16', 'policy:O1', 'policy:O2', 'flex16+5', 'dfp16', 'policy:dfp16']
DEPTH, LONG, SEEDS = 17, 16, 3  # layers of the network looked into, and of the one that is trained longer and by policies
STEPS = [1, 51, 101]  # rows of telemetry
SHADOWS = ['fp16', 'bf16', 'flex16+5', 'dfp16']
LAYERS = {f'fc{i}{end}': (i, kind) for i in range(1, DEPTH + 1)  # what the linear layers give, and its gradients
          for end, kind in (('', 'activation'), ('.grad', 'gradient'))}
WATCHED = ['fp32', 'fp16:noscale']
DEPTHS, DEPTH_STEPS = [14, 16, 17, 18], 400
DEEP = ['fp32', 'bf16', 'fp16:noscale', 'fp16', 'flex16+5', 'dfp16']
LARGER = 'fp16, scale from 2^24'  # at the greatest depth
HOW = ['--batch', '512', '--optimizer', 'adam', '--lr', '0.001', '--no-augment', '--epochs', '10']
MODEL = {depth: ['--model', f'mlp{depth}x128'] + HOW for depth in DEPTHS}


def train(flexlab, data, folder):
    os.makedirs(folder, exist_ok=True)
    out = os.path.join(folder, f'mlp{LONG}x128')
    if not lab.complete(out):
        plain, policies = [[n for n in FORMATS if n.startswith('policy:') == p] for p in (False, True)]
        lab.run(flexlab, MODEL[LONG] + ['--data', data, '--formats', ','.join(plain), '--policy', ','.join(n[7:] for n in policies), '--seeds',
                                  str(SEEDS), '--average-last', '50', '--allow-divergence'], out)
    out = os.path.join(folder, 'layers')
    if not lab.complete(out):
        lab.run(flexlab, MODEL[DEPTH] + ['--data', data, '--formats', ','.join(WATCHED), '--seeds', str(SEEDS), '--max-steps', str(STEPS[-1]), '--telemetry',
                                  '50:fc*.grad,fc?,fc??', '--shadow', ','.join(SHADOWS)], out)
    short = ['--data', data, '--test-limit', '2000', '--seeds', str(SEEDS), '--max-steps', str(DEPTH_STEPS), '--average-last', '50',
             '--no-trace', '--allow-divergence']
    for depth in DEPTHS:
        out = os.path.join(folder, f'depth{depth}')
        if not lab.complete(out):
            lab.run(flexlab, MODEL[depth] + short + ['--formats', ','.join(DEEP)], out)
    out = os.path.join(folder, f'scale{DEPTHS[-1]}')
    if not lab.complete(out):
        lab.run(flexlab, MODEL[DEPTHS[-1]] + short + ['--formats', 'fp32,fp16', '--loss-scale', 'dynamic:init=16777216'], out)


def collect(folder):
    runs = lab.results(os.path.join(folder, f'mlp{LONG}x128'))
    lab.write('underflow-runs.csv', sorted(runs, key=lambda r: (FORMATS.index(r['format']), r['seed'])))
    rows = [{'depth': depth} | r for depth in DEPTHS for r in lab.results(os.path.join(folder, f'depth{depth}'))]
    rows += [{'depth': DEPTHS[-1]} | r | {'format': LARGER} for r in lab.results(os.path.join(folder, f'scale{DEPTHS[-1]}'))
             if r['format'] == 'fp16']
    lab.write('underflow-depths.csv', rows)
    rows = []
    for name in WATCHED:
        for seed in range(1, SEEDS + 1):
            for r in lab.table(os.path.join(folder, 'layers'), 'telemetry', name, seed):
                if int(r['step']) in STEPS and r['tensor'] in LAYERS:
                    rows.append({'format': name, 'seed': seed, 'step': r['step'], 'layer': LAYERS[r['tensor']][0],
                                 'kind': LAYERS[r['tensor']][1], 'elements': r['elements'],
                                 'zeros': r['zeros'], 'l2': r['l2']} | {f + '_flushed': r[f + '.flushed'] for f in SHADOWS})
    lab.write('underflow-layers.csv', rows)


def against_fp32(rows, names):
    of = {(r['format'], int(r['seed'])): r for r in rows}
    body = []
    for name in names:
        got = [of[name, s + 1] for s in range(SEEDS)]
        d = [100 * (float(r['test_accuracy']) - float(of['fp32', s + 1]['test_accuracy'])) for s, r in enumerate(got)]
        body.append([name, ', '.join(f'{float(r["last_loss"]):.4f}' for r in got), ', '.join(f'{100 * float(r["test_accuracy"]):.2f}' for r in got)] +
                    (['', ''] if name == 'fp32' else [', '.join(lab.signed(x, 2) for x in d), f'{lab.spread(d, 2, True)} ({lab.p_text(d)})']))
    return body


def tables():
    heads = ['loss, last 50 steps', 'test accuracy, %', 'minus fp32, points', 'mean ± sd (p)']
    rows = lab.read('underflow-depths.csv')
    lab.markdown([f'{DEPTH} layers, {DEPTH_STEPS} steps'] + heads, against_fp32([r for r in rows if int(r['depth']) == DEPTH], DEEP))
    body = []
    for name in DEEP + [LARGER]:
        body.append([name])
        for depth in DEPTHS:
            got = [r for r in rows if r['format'] == name and int(r['depth']) == depth]
            body[-1].append(', '.join(f'{float(r["last_loss"]):.3f}' for r in sorted(got, key=lambda r: int(r['seed']))))
    lab.markdown(['layers'] + [str(d) for d in DEPTHS], body)
    lab.markdown([f'{LONG} layers, 970 steps'] + heads, against_fp32(lab.read('underflow-runs.csv'), FORMATS))
    rows = lab.read('underflow-layers.csv')
    at = lambda name, layer, step, kind: [r for r in rows if (r['format'], int(r['layer']), int(r['step']), r['kind']) == (name, layer, step, kind)]
    rms = lambda got: ', '.join(f'{float(r["l2"]) / math.sqrt(int(r["elements"])):.1e}' for r in got)
    lost = lambda got, name: ', '.join(f'{100 * int(r[name + "_flushed"]) / (int(r["elements"]) - int(r["zeros"])):.0f}' for r in got)
    body = []
    for layer in range(DEPTH, 0, -1):
        there, back = at('fp32', layer, 1, 'activation'), at('fp32', layer, 1, 'gradient')
        body.append([f'fc{layer}', rms(there), lost(there, 'fp16'), rms(back)] + [lost(back, name) for name in SHADOWS])
    lab.markdown(['fp32, step 1', 'output, root mean square', 'fp16 flushes of it, %', 'its gradient, root mean square'] +
                 [f'{n} flushes of it, %' for n in SHADOWS], body)
    step = STEPS[1]
    lab.markdown([f'step {step}', 'fp32: gradient, root mean square', 'fp32: zeros, %', 'fp16:noscale: zeros, %'],
                 [[f'fc{layer}', rms(at('fp32', layer, step, 'gradient'))] +
                  [', '.join(f'{100 * int(r["zeros"]) / int(r["elements"]):.0f}' for r in at(name, layer, step, 'gradient'))
                   for name in WATCHED] for layer in range(DEPTH, 0, -3)])


if __name__ == '__main__':
    if len(sys.argv) == 4:
        train(*sys.argv[1:])
        collect(sys.argv[3])
    elif len(sys.argv) == 2:
        collect(sys.argv[1])
    elif len(sys.argv) != 1:
        sys.exit(__doc__)
    tables()
