// Predicted steps, compared with measured ones.

// Returns the name of the line that a prediction belongs to: predictions from the same runs that differ only in the
// number of replicas.
function lineOf(prediction, source) {
  const pipeline = prediction.pp > 1 ?
      `${prediction.schedule} pp ${prediction.pp}, ${prediction.micro_batches} micro-batches` : 'ddp';
  return `${pipeline}, batch ${prediction.batch_per_rank}: predicted${source}`;
}

// Returns the lines: {name, predicted: [...], held: held-out points [{prediction, measured_seconds, ...}], fitted: cells
// used for fitting}.
function predictionLines() {
  const lines = new Map();
  const line = (prediction, source) => {
    const name = lineOf(prediction, source);
    if (!lines.has(name)) lines.set(name, {name, predicted: [], held: [], fitted: new Set()});
    return lines.get(name);
  };
  for (const score of study.scores) {
    for (const point of score.points) {
      const own = line(point.prediction, ` from up to ${plural(score.fitted_up_to, 'rank')}`);
      own.predicted.push(point.prediction);
      own.held.push(point);
      const held = study.cells[point.cell];
      for (const cell of study.cells) {
        const alike = cell.trainer === held.trainer && cell.rank_batch === held.rank_batch && !cell.ablation;
        if (alike && cell.ranks <= score.fitted_up_to) own.fitted.add(cell);
      }
    }
  }
  for (const prediction of study.predictions) line(prediction, '').predicted.push(prediction);
  for (const one of lines.values()) one.predicted.sort((a, b) => a.ranks - b.ranks);
  return [...lines.values()];
}

function predictedHover(prediction) {
  const lines = [
    `step ${milliseconds(prediction.step_seconds)} ${interval(prediction.step_interval, (s) => digits(s * 1e3))}`,
    `${digits(prediction.rate, 4)} ${prediction.rate_unit}`,
  ];
  if (prediction.exposed_comm_seconds > 0) {
    lines.push(`exposed communication ${milliseconds(prediction.exposed_comm_seconds)}`);
  }
  if (prediction.bubble_seconds > 0) lines.push(`bubble ${milliseconds(prediction.bubble_seconds)}`);
  for (const reason of prediction.extrapolations) lines.push(`beyond what was measured: ${reason}`);
  return hoverText(`${prediction.name}, predicted`, ...lines);
}

function measuredTrace(look, symbol) {
  return {
    type: 'scatter', mode: 'markers', marker: {color: look.ink, symbol, size: 11, line: {color: look.ink, width: 2.5}},
  };
}

function predictionTraces(look, line, n) {
  const mark = style(look, n);
  const xs = line.predicted.map((one) => one.ranks);
  const lows = line.predicted.map((one) => scaled(endOf(one.step_interval, 0), 1e3));
  const highs = line.predicted.map((one) => scaled(endOf(one.step_interval, 1), 1e3));
  const values = line.predicted.map((one) => one.step_seconds * 1e3);
  const traces = [
    band(xs, lows, highs, mark.color, {legendgroup: line.name}),
    {
      type: 'scatter', mode: 'lines+markers', name: plain(line.name), x: xs, y: values,
      line: {color: mark.color, dash: mark.dash, width: 2},
      marker: {
        color: mark.color, size: 8,
        symbol: line.predicted.map((one) => (one.extrapolations.length > 0 ? `${mark.symbol}-open` : mark.symbol)),
      },
      error_y: errorBars(values, lows, highs, mark.color),
      text: line.predicted.map(predictedHover), hoverinfo: 'text', legendgroup: line.name,
    },
  ];
  if (line.held.length === 0) return traces;
  const fitted = [...line.fitted];
  traces.push({
    ...measuredTrace(look, 'circle-open'), showlegend: false, legendgroup: line.name,
    x: fitted.map((cell) => cell.ranks), y: fitted.map((cell) => cell.step_seconds * 1e3),
    text: fitted.map((cell) => hoverText(
        cell.label, `step ${milliseconds(cell.step_seconds)}`, 'measured; used for the prediction')),
    hoverinfo: 'text',
  }, {
    ...measuredTrace(look, 'x-thin'), showlegend: false, legendgroup: line.name,
    x: line.held.map((one) => one.prediction.ranks), y: line.held.map((one) => one.measured_seconds * 1e3),
    text: line.held.map((one) => hoverText(
        `${one.prediction.name}, measured`, `step ${milliseconds(one.measured_seconds)}`,
        `predicted ${signedPercent(one.error)}`)),
    hoverinfo: 'text',
  });
  return traces;
}

function predictionFigure(look, width, lines) {
  const data = lines.flatMap((line, n) => predictionTraces(look, line, n));
  if (lines.some((line) => line.held.length > 0)) {
    data.push(
        {...measuredTrace(look, 'circle-open'), name: 'measured, used for the prediction', x: [null], y: [null]},
        {...measuredTrace(look, 'x-thin'), name: 'measured, held out', x: [null], y: [null]});
  }
  const sizes = [...new Set(lines.flatMap((line) => [...line.predicted, ...line.fitted].map((one) => one.ranks)))].sort((a, b) => a - b);
  const times = lines.flatMap((line) => line.predicted.map((one) => one.step_seconds));
  const wide = Math.max(...times) > 8 * Math.min(...times);
  return {
    data,
    layout: layout(look, chartHeight(width), {
      xaxis: axis(look, 'ranks', {type: 'log', tickvals: sizes, ticktext: sizes.map(String)}),
      yaxis: axis(look, 'ms per step', wide ? {type: 'log'} : {rangemode: 'tozero'}),
    }),
  };
}

// Counts only points whose intervals come from enough runs.
function coverageText(score) {
  const judged = score.points.filter((point) => point.covered !== null).length;
  return score.coverage === null ? 'too few runs were fitted to judge the intervals' :
      `the intervals contain ${percent(score.coverage, 0)} of ${judged === score.points.length ? 'them' : judged}`;
}

function errorFigure(look, width, points) {
  const rows = points.map((point, i) => i);
  const end = (point, at) => {
    const step = endOf(point.prediction.step_interval, at);
    return step === null ? null : 100 * (step / point.measured_seconds - 1);
  };
  const trace = (name, covered, hue, symbol) => {
    const own = rows.filter((row) => points[row].covered === covered);
    const errors = own.map((row) => 100 * points[row].error);
    return {
      type: 'scatter', mode: 'markers', name, y: own, x: errors, marker: {color: look[hue], symbol, size: 10},
      error_x: errorBars(
          errors, own.map((row) => end(points[row], 0)), own.map((row) => end(points[row], 1)), look[hue]),
      text: own.map((row) => hoverText(
          points[row].prediction.name, `predicted ${milliseconds(points[row].prediction.step_seconds)}`,
          `measured ${milliseconds(points[row].measured_seconds)}`, signedPercent(points[row].error))),
      hoverinfo: 'text',
    };
  };
  return {
    data: [
      trace('measured inside the interval', true, 'blue', 'circle'),
      trace('measured outside the interval', false, 'vermillion', 'x'),
      trace('fitted to too few runs to judge', null, 'neutral', 'circle-open'),
    ].filter((one) => one.x.length > 0),
    layout: layout(look, rowsHeight(width, points.length), {
      showlegend: true,
      xaxis: percentAxis(look, 'predicted over measured step time, minus 100 %', {
        rangemode: 'tozero', zeroline: true, zerolinecolor: look.neutral, zerolinewidth: 2,
      }),
      yaxis: rowAxis(look, points.map((point) => point.prediction.name), width),
    }),
  };
}

function addPredictions() {
  const part = section(
      'predictions', 'What comes next',
      'Step times predicted from recorded steps and the fitted costs of communication, with their intervals; hollow ' +
          'if beyond what was measured. Crosses are measured steps that the prediction did not use.');
  const lines = predictionLines();
  if (lines.length === 0) {
    missing(part, 'Nothing was predicted: a prediction needs traffic records and the cost of communication. With the study\'s folder for DIR:',
            './bazelw run //analysis:predict -- --records=DIR --world_sizes=4,8');
    return;
  }
  part.append(element('p', {}, 'To find the fastest layouts for other world sizes, with the study\'s folder for DIR: ',
      element('code', {}, './bazelw run //analysis:predict -- --records=DIR --world_sizes=4,8 --recommend')));
  chart(part, 'prediction-lines', 'Predicted step time against ranks', (look, width) => predictionFigure(look, width, lines));
  const points = study.scores.flatMap((score) => score.points);
  part.append(element('h3', {}, 'Accuracy of predictions'));
  if (points.length === 0) {
    missing(part, 'No prediction was scored: a score needs a world size to hold out. A study with one:',
            './bazelw run //:study -- --world_sizes=1,2,3 --oversubscribe');
    return;
  }
  for (const score of study.scores) {
    part.append(element('p', {}, `From runs of up to ${plural(score.fitted_up_to, 'rank')}: median error ` +
        `${percent(score.median_absolute_error)} over ${plural(score.points.length, 'held-out configuration')}; ` +
        `${coverageText(score)}; their median width is ${percent(score.median_relative_width, 0)} of the step.`));
    if (score.left_out.length > 0) part.append(folded(`${plural(score.left_out.length, 'cell')} not predicted`, score.left_out));
  }
  chart(part, 'prediction-errors', 'Errors of the held-out predictions', (look, width) => errorFigure(look, width, points));
}
