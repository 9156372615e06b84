for (const filter of document.querySelectorAll(".filter")) {
  const section = filter.closest("section"), input = filter.querySelector("input"), told = filter.querySelector("output");
  const all = [...section.querySelectorAll(".findings > details")].map((one) => [one, one.textContent.toLowerCase()]);
  input.addEventListener("input", () => {
    const words = input.value.toLowerCase().split(/\s+/);
    let left = 0;
    for (const [one, text] of all) {
      one.hidden = !words.every((word) => text.includes(word));
      left += !one.hidden;
    }
    told.textContent = input.value.trim() ? `${left} shown` : "";
  });
}
