try { const t = localStorage.getItem('tk-theme'); if (t) document.documentElement.dataset.theme = t; } catch (e) { /* storage may be off */ }
