// Sets the colours that were chosen before the page is drawn, so that it does not flash.
{
  const theme = localStorage.getItem("esker-theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
}
