// Charts of the parts of steps and of the losses of efficiency.

const ledgerParts = [
  {key: 'compute', name: 'compute', hue: 'blue', pattern: ''},
  {key: 'exposed_tp', name: 'exposed communication along tp', hue: 'pink', pattern: '\\'},
  {key: 'exposed_cp', name: 'exposed communication along cp', hue: 'sky', pattern: '+'},
  {key: 'exposed_pp', name: 'exposed communication along pp', hue: 'vermillion', pattern: '|'},
  {key: 'exposed_dp', name: 'exposed communication along dp', hue: 'vermillion', pattern: '/'},
  {key: 'bubble', name: 'pipeline bubble', hue: 'orange', pattern: 'x'},
  {key: 'data_wait', name: 'data wait', hue: 'green', pattern: '.'},
  {key: 'residual', name: 'residual', hue: 'neutral', pattern: '-'},
];

function total(parts) {
  return ledgerParts.reduce((sum, {key}) => sum + parts[key], 0);
}

// A rank, or a stage of a process that runs several.
function placeName({rank, stage}) {
  return stage < 0 ? `rank ${rank}` : `stage ${stage}`;
}

// Bars from top to bottom: {label, name, parts}.
function ledgerBars(everyRank) {
  return study.ledgers.flatMap((ledger) => {
    const name = study.cells[ledger.cell].label;
    if (!everyRank) return [{label: name, parts: ledger.critical}];
    return ledger.ranks.map((rank, i) => ({
      label: i === 0 ? `${name}: ${placeName(rank)}` : placeName(rank), name, parts: rank.parts,
    }));
  });
}

// The total time of each step, to the right of its bar.
function stepTimes(look, bars) {
  return {
    type: 'scatter', mode: 'text', y: bars.map((bar, row) => row), x: bars.map((bar) => 1e3 * total(bar.parts)),
    text: bars.map((bar) => `\u00a0${milliseconds(total(bar.parts))}`), textposition: 'middle right', cliponaxis: false,
    textfont: {color: look.muted, size: 12}, hoverinfo: 'skip', showlegend: false,
  };
}

function partsFigure(look, width, bars, asShare, unit = 'ms per step') {
  const scale = (parts) => (asShare ? 100 / total(parts) : 1e3);
  const rows = bars.map((bar, i) => i);
  const data = ledgerParts.filter(({key}) => bars.some((bar) => Math.abs(bar.parts[key]) > 1e-9)).map((part) => ({
    type: 'bar', orientation: 'h', name: part.name, y: rows,
    x: bars.map((bar) => bar.parts[part.key] * scale(bar.parts)),
    marker: fill(look, part.hue, part.pattern),
    text: bars.map((bar) => {
      const share = bar.parts[part.key] / total(bar.parts);
      if (share < 0.05) return '';
      return `<b>${asShare ? percent(share, 0) : digits(bar.parts[part.key] * 1e3)}</b>`;
    }),
    textposition: 'inside', insidetextanchor: 'middle', textangle: 0,
    insidetextfont: {color: look.name === 'light' && part.hue !== 'orange' ? '#fff' : '#14171c'},
    hovertext: bars.map((bar) => hoverText(
        bar.name ? `${bar.name}: ${bar.label.replace(/^.*: /, '')}` : bar.label,
        `${part.name}: ${milliseconds(bar.parts[part.key])}, ${percent(bar.parts[part.key] / total(bar.parts))}`,
        `step: ${milliseconds(total(bar.parts))}`)),
    hoverinfo: 'text',
  }));
  if (!asShare) data.push(stepTimes(look, bars));
  const longest = Math.max(...bars.map((bar) => total(bar.parts)));
  return {
    data,
    layout: layout(look, rowsHeight(width, bars.length), {
      barmode: 'relative',
      bargap: 0.25,
      uniformtext: {minsize: 10, mode: 'hide'},
      legend: {orientation: 'h', x: 0, xanchor: 'left', y: 1, yanchor: 'bottom', traceorder: 'normal', font: {size: 12}},
      xaxis: asShare ? percentAxis(look, 'share of the step') : axis(look, unit, {range: [0, longest * 1e3 * (1 + 80 / width)]}),
      yaxis: rowAxis(look, bars.map((bar) => bar.label), width),
    }),
  };
}

function addLedger() {
  const part = section(
      'ledger', 'Where the step goes',
      'Means over steps and runs for the critical rank: the one that waited least, so that the others waited for it. ' +
          'Its wait in communication is exposed communication; that of the other ranks includes waiting for late ranks. ' +
          'The parts add up to the job\'s time over its steps, the largest sum of one rank; the unexplained rest is the residual.');
  if (study.ledgers.length === 0) {
    missing(part, 'No run has enough steps after warm-up for a ledger. A study with enough:', './bazelw run //:study');
    return;
  }
  let everyRank = false, asShare = false;
  let draw = () => {};
  const bar = controls(part);
  choice(bar, 'unit', ['ms per step', 'share of the step'], (place) => {
    asShare = place === 1;
    draw();
  });
  choice(bar, 'ranks', ['critical rank', 'every rank'], (place) => {
    everyRank = place === 1;
    draw();
  });
  draw = chart(
      part, 'ledger-bars', 'Parts of the step time of each configuration',
      (look, width) => partsFigure(look, width, ledgerBars(everyRank), asShare));
  if (study.ledgers.some((ledger) => !ledger.separates_bubble)) {
    part.append(element('p', {class: 'caption'},
        'For runs recorded before schema version 1.3, the bubble includes exposed transfers.'));
  }
  const captured = study.ledgers.filter((ledger) => ledger.captured_seconds > 0);
  if (captured.length > 0) {
    part.append(element('p', {class: 'caption'},
        `The compute of captured steps includes forward, backward, communication and update, which one graph launch does not separate. ` +
            `Captured: ${captured.map((ledger) => study.cells[ledger.cell].label).join('; ')}.`));
  }
}

function waterfallName(waterfall) {
  return `${study.cells[waterfall.cell].label}, ${scalingTitle(waterfall.scaling)}`;
}

// Returns the ideal speed as a share of the hardware's limit; null if the limit is unknown or the share is too small for
// one chart.
function shareOfTheLimit(waterfall) {
  const smallest = 0.1;
  const share = waterfall.limit_seconds === null ? 0 : waterfall.limit_seconds / waterfall.ideal_seconds;
  return share >= smallest ? share : null;
}

// Losses from the hardware's limit, or from the ideal step where shareOfTheLimit is null, to the measured step.
function waterfallFigure(look, width, waterfall) {
  const share = shareOfTheLimit(waterfall), whole = share || 1;
  const before = share === null ? [] : [{
    cause: 'one rank below the limit', points: 1 - share, seconds: waterfall.ideal_seconds - waterfall.limit_seconds, interval: null,
  }];
  const losses = [...before, ...waterfall.losses.map((loss) => ({...loss, points: whole * loss.points}))];
  const efficiency = waterfall.ideal_seconds / waterfall.measured_seconds;
  const first = share === null ? 'ideal' : 'hardware limit';
  const firstSeconds = share === null ? waterfall.ideal_seconds : waterfall.limit_seconds;
  const speed = share === null ? 'the ideal speed' : 'the hardware\'s limit';
  const reached = [];
  losses.reduce((left, loss) => (reached.push(left - loss.points), left - loss.points), 1);
  const known = [...losses.keys()].filter((i) => losses[i].interval !== null);
  // Half the width of each loss's interval, as a share like `points`; 0 if it has none.
  const within = losses.map(({interval}) => (interval === null ? 0 : whole * (interval[1] - interval[0]) / 2 / waterfall.measured_seconds));
  const low = Math.min(0, ...reached.map((end, i) => end - within[i])), high = Math.max(1, ...reached.map((end, i) => end + within[i]));
  const names = [first, ...losses.map((loss) => loss.cause), 'measured'];
  const narrow = width < 800;
  const room = narrow ? 40 : 12;  // for the texts next to the bars, in percent
  // A bar that ends near the names has no room for its text on the left.
  const place = (end) => (narrow && end < 0.4 ? 'inside' : 'outside');
  const bar = (color) => ({marker: {color, line: {color: look.paper, width: 1}}});
  return {
    data: [{
      type: 'waterfall', orientation: 'h', y: names.map((name, i) => i),
      x: [100, ...losses.map((loss) => -100 * loss.points), 0],
      measure: ['absolute', ...losses.map(() => 'relative'), 'total'],
      text: [percent(1, 0), ...losses.map((loss) => signedPercent(-loss.points)), percent(whole * efficiency)],
      textposition: ['outside', ...reached.map(place), 'outside'], cliponaxis: false, textfont: {color: look.ink},
      insidetextfont: {color: look.name === 'light' ? '#fff' : '#14171c'},
      hovertext: [
        hoverText(first, `step ${milliseconds(firstSeconds)}`),
        ...losses.map((loss) => hoverText(loss.cause, `${milliseconds(loss.seconds)} of the step`,
                                          ...(loss.interval === null ? [] : [`95 % interval ${interval(loss.interval, (s) => digits(s * 1e3))} ms`]),
                                          `${signedPercent(-loss.points)} of ${speed}`)),
        hoverText('measured', `step ${milliseconds(waterfall.measured_seconds)}`, `efficiency ${percent(efficiency)}`),
      ],
      hoverinfo: 'text',
      decreasing: bar(look.vermillion), increasing: bar(look.green), totals: bar(look.blue),
      connector: {line: {color: look.neutral, width: 1, dash: 'dot'}},
    }, {
      // The losses' intervals, at the ends of their bars and below the labels.
      type: 'scatter', mode: 'markers', y: known.map((i) => i + 1.3), x: known.map((i) => 100 * reached[i]),
      marker: {size: 1, color: look.ink}, hoverinfo: 'skip',
      error_x: {type: 'data', array: known.map((i) => 100 * within[i]), color: look.ink, thickness: 1, width: 3},
    }],
    layout: layout(look, rowsHeight(width, names.length), {
      showlegend: false,
      xaxis: percentAxis(look, `share of ${speed}`, {range: [100 * low - (low < 0 ? room : 0), 100 * high + room]}),
      yaxis: rowAxis(look, names, width),
    }),
  };
}

// Whether the interval of a loss contains 0.
function isWithinNoise({interval}) {
  return interval !== null && interval[0] <= 0 && interval[1] >= 0;
}

// Lists the remedies for losses of a point or more beyond noise, the largest first.
function remedies(waterfall) {
  const worst = waterfall.losses.filter((loss) => loss.points >= 0.01 && !isWithinNoise(loss)).sort((a, b) => b.points - a.points);
  const list = element('ul', {class: 'remedies'}, ...worst.map((loss) => element(
      'li', {}, element('b', {}, `${loss.cause}, ${milliseconds(loss.seconds)} of the step: `), ...prose(loss.remedy))));
  for (const merged of waterfall.merged) list.append(element('li', {class: 'aside'}, ...prose(merged)));
  return list;
}

// Returns the index of the waterfall shown first: ddp on most ranks, or if there is none, any trainer on most ranks.
function firstWaterfall() {
  const rank = ({cell}) => study.cells[cell].ranks + (study.cells[cell].trainer === 'ddp' ? 1e9 : 0);
  let best = 0;
  study.waterfalls.forEach((waterfall, i) => {
    if (rank(waterfall) > rank(study.waterfalls[best])) best = i;
  });
  return best;
}

function addWaterfall() {
  const part = section(
      'waterfall', 'What the efficiency was lost to',
      'From the ideal step to the measured one, cause by cause, each with its 95 % interval over the runs. A negative loss, in green, is a gain; ' +
          'a loss whose interval contains 0 is noise.');
  if (study.waterfalls.length === 0) {
    missing(part, 'No pair of a base case and a larger world size could be compared. A study of two sizes:',
            './bazelw run //:study -- --world_sizes=1,2');
    return;
  }
  let shown = firstWaterfall();
  const words = element('div');
  const tell = () => words.replaceChildren(remedies(study.waterfalls[shown]));
  let draw = () => {};
  select(controls(part), 'Configuration', study.waterfalls.map(waterfallName), shown, (place) => {
    shown = place;
    tell();
    draw();
  });
  draw = chart(
      part, 'waterfall-bars', 'Losses from the ideal to the measured efficiency',
      (look, width) => waterfallFigure(look, width, study.waterfalls[shown]));
  part.append(words);
  tell();
}
