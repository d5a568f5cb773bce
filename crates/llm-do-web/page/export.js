const calls = [...document.querySelectorAll("details.call")];
document.getElementById("filter").addEventListener("input", (event) => {
  const sought = event.target.value.toLowerCase();
  for (const call of calls) call.hidden = Boolean(sought) && !call.textContent.toLowerCase().includes(sought);
});
