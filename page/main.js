// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Reads the facts and shows the finding of each file as text.

const facts = JSON.parse(document.getElementById("facts").textContent);

function paragraph(text) {
  const element = document.createElement("p");
  element.textContent = text;
  return element;
}

for (const file of facts.files) {
  const heading = document.createElement("h1");
  heading.textContent = file.name;
  document.getElementById("page").append(heading, paragraph(file.report.finding.join(" ")));
  for (const advice of file.report.advice) document.getElementById("page").append(paragraph(advice.text));
}
