// Training losses over steps.

function lossFigure(look, width, logarithmic) {
  return {
    data: study.losses.map((curve, n) => {
      const mark = style(look, n);
      return {
        type: 'scatter', mode: 'lines', name: plain(curve.name), x: curve.steps, y: curve.losses,
        // Later curves are thinner, so that equal curves stay visible.
        line: {color: mark.color, dash: mark.dash, width: Math.max(1.5, 4.5 - 0.5 * n)},
        text: curve.steps.map((step, i) => hoverText(curve.name, `step ${step}: loss ${digits(curve.losses[i], 5)}`)),
        hoverinfo: 'text',
      };
    }),
    layout: layout(look, chartHeight(width) + 12 * study.losses.length, {
      legend: {orientation: 'h', x: 0, xanchor: 'left', y: -0.18, yanchor: 'top'},
      xaxis: axis(look, 'step'),
      yaxis: axis(look, 'training loss', {type: logarithmic ? 'log' : 'linear'}),
    }),
  };
}

function addLosses() {
  const part = section(
      'losses', 'Losses over steps',
      'Mean over ranks, for one run per configuration. Curves with equal seeds and equal global batches should coincide.');
  if (study.losses.length === 0) {
    missing(part, 'No run recorded a loss. A study that records them:', './bazelw run //:study');
    return;
  }
  let logarithmic = false;
  let draw = () => {};
  choice(controls(part), 'loss axis', ['linear', 'logarithmic'], (place) => {
    logarithmic = place === 1;
    draw();
  });
  draw = chart(part, 'loss-lines', 'Training loss against steps', (look, width) => lossFigure(look, width, logarithmic));
  const thinned = Math.max(...study.losses.map((curve) => curve.stride));
  if (thinned > 1) {
    part.append(element('p', {class: 'caption'}, `Long curves show only one step in ${thinned}.`));
  }
}
