"use strict";
(() => {
  const root = document.documentElement;
  root.classList.add("js");

  // One job at a time; the address keeps the choice, so that a link leads to the same job.
  const chooser = document.getElementById("job");
  const jobs = Array.from(document.querySelectorAll(".job"));
  const show = (id) => {
    if (!jobs.some((job) => job.id === id)) return;
    for (const job of jobs) job.hidden = job.id !== id;
    chooser.value = id;
  };
  if (chooser) {
    chooser.addEventListener("change", () => {
      show(chooser.value);
      history.replaceState(null, "", "#" + chooser.value);
    });
    const follow = () => show(decodeURIComponent(location.hash.slice(1)));
    addEventListener("hashchange", follow);
    if (jobs.length) show(jobs[0].id);
    follow();
  }

  // A page that was kept for a week says so: ages count from now, not from when it was written.
  const age = (hours) =>
    hours < 1 ? Math.round(Math.max(hours, 0) * 60) + " min ago"
    : hours < 48 ? Math.round(hours) + " h ago"
    : Math.round(hours / 24).toLocaleString("en-US") + " days ago";
  for (const time of document.querySelectorAll("time[data-age]")) {
    time.textContent = age((Date.now() - Date.parse(time.dateTime)) / 3600000);
  }

  const data = JSON.parse(document.getElementById("history-data").textContent);
  for (const place of document.querySelectorAll(".chart")) {
    const values = data.series[Number(place.dataset.series)].map((row) => ({
      ...row,
      on: row.day,
      from: row.is_baseline ? "bundled baseline" : "the provider's list",
    }));
    // A layer without a row would have no extent.
    const layer = data.spec.layer.filter((one) =>
      values.some((row) => row.is_baseline === (one.name === "baseline")));
    const spec = { ...data.spec, layer, datasets: { history: values } };
    // `ast`: expressions are interpreted, not compiled, which the page's policy would refuse.
    vegaEmbed(place, spec, { actions: false, renderer: "svg", ast: true, tooltip: { theme: "page" } })
      .catch((error) => {
        place.textContent = "This chart could not be drawn: " + error.message;
        console.error(error);
      });
  }
})();
